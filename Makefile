# make demo    set up .venv and show what gradproof does
# make test    set up .venv and run style, types and the quick tests
# make docs    build the documentation in build/docs; warnings are errors
# make pictures    draw the pictures of the documentation again
# A second run finds .venv as it is and installs nothing.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TRITON := .venv/.triton
JAX := .venv/.jax
DOCS := .venv/.docs

# Two test processes share the cores: one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

.PHONY: demo test test-numpy test-jax test-oldest test-slow lint format docs pictures clean

demo: $(INSTALLED)
	@echo '--- 1. an operator of PyTorch, whose derivative is right'
	$(BIN)/gradproof check torch.nn.functional:layer_norm "float64[8,16]" "[16]"
	@echo
	@echo '--- 2. a layer norm whose backward lacks a term: exit status 1 is the right answer'
	$(BIN)/gradproof check examples/wrong_layer_norm.py:layer_norm \
		"float64[8,16]" "float64[16]" "float64[16]"; test $$? -eq 1
	@echo
	@echo '--- 3. some operators of PyTorch beside its own gradcheck'
	$(BIN)/python benchmarks/operators.py --quick
	@echo
	@echo '--- 4. the mistake of 2. on a page: open it in a browser'
	@$(BIN)/python examples/page_of_a_mistake.py

test: lint
	$(PYTEST)

# The columns of CI without PyTorch, each in an environment of its own.
test-numpy: .venv-numpy/.installed
	OMP_NUM_THREADS=1 .venv-numpy/bin/pytest -n 2

test-jax: .venv-jax/.installed
	OMP_NUM_THREADS=1 .venv-jax/bin/pytest -n 2

# The oldest versions that are declared, of JAX and of what needs no framework. Pallas of that JAX
# imports absl, which JAX does not depend on.
test-oldest: .venv-oldest/.installed
	OMP_NUM_THREADS=1 .venv-oldest/bin/pytest -n 2

test-slow: $(INSTALLED) $(TRITON) $(JAX)
	$(PYTEST) -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED) $(DOCS) $(JAX)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs

pictures: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python docs/pictures.py

clean:
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

# The build backend is installed first and the build not isolated, so that constraints.txt
# pins it too.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation \
		-c constraints.txt -e '.[torch,report,dev]'
	touch $@

.venv-numpy/.installed: pyproject.toml constraints.txt
	$(call fresh,.venv-numpy,constraints.txt,scipy)

.venv-jax/.installed: pyproject.toml constraints.txt
	$(call fresh,.venv-jax,constraints.txt,scipy jax equinox flax)

.venv-oldest/.installed: pyproject.toml constraints-oldest.txt
	$(call fresh,.venv-oldest,constraints-oldest.txt,scipy jax absl-py)

# An environment ($1) with the package, its test tools and more packages ($3), but not PyTorch, in
# the versions that a file ($2) says.
define fresh
$(PYTHON) -m venv $1
$1/bin/pip install --quiet --disable-pip-version-check -c $2 hatchling editables
$1/bin/pip install --quiet --disable-pip-version-check --no-build-isolation -c $2 \
	-e '.[report]' hypothesis pytest pytest-xdist $3
touch $1/.installed
endef

# The kernels in examples/triton_kernels need it, a gigabyte of compilers: the slow tests only.
$(TRITON): $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt triton
	touch $@

# For the slow tests of functions of JAX.
$(JAX): $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt jax
	touch $@

$(DOCS): $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt furo myst-parser sphinx
	touch $@
