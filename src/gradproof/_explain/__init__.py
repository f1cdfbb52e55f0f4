"""Places and causes of a failure, from its findings and measured numbers alone."""
