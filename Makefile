# The book in two commands: `make book` builds it, `make test` checks it. `make` lists the rest.
# Works with the GNU make 3.81 that macOS has.
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PORT := 8000
# Two processes: a notebook, or a group of tests, stays in one of them
PYTEST := $(PY) -m pytest -q -n 2
NBVAL := $(PYTEST) --dist loadscope --nbval --nbval-cell-timeout=600 notebooks
COLAB := .venv-colab
IN_COLAB = $(COLAB)/bin/python -m pytest -q -n 2 --dist loadscope --disable-warnings --nbval --nbval-cell-timeout=600
TESTS := $(PYTEST) --dist loadscope --doctest-modules roofline_helpers roofline tests
export PYTHONHASHSEED := 0
export JAX_PLATFORMS := cpu
export TF_CPP_MIN_LOG_LEVEL := 3

.PHONY: help book slides serve test quick thorough colab incolab lint notebooks predictions records programs lab links repository lock clean environment
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo "  PYTHON=python3.12 chooses the Python that the environment is made with."

$(VENV)/.locked: requirements.txt
	@sh tools/environment.sh $(VENV) "$(PYTHON)"
	@touch $@

# The package itself, from this folder; its dependencies and its build tools are in the lock
$(READY): $(VENV)/.locked pyproject.toml
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

environment: $(READY)

book: $(READY) ## build the site into _build/html
	@$(PY) -m tools.site.build
	@echo "Open $(CURDIR)/_build/html/index.html in a browser, or run \`make serve\`."

slides: book ## make slides and a teacher's answer key out of the site
	@$(PY) -m tools.site.slides
	@echo "Open _build/slides.html and _build/answers.html in a browser."

serve: book ## build the site and show it on http://localhost:8000
	@echo "The book is at http://localhost:$(PORT) (stop with Ctrl-C)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

test: lint book ## run every check: lint, types, spelling, site, notebooks, tests
	@ROOFLINE_USE=record $(NBVAL)
	@$(TESTS)

quick: lint ## run lint, the reference's examples and the package's quick tests: two to four minutes
	@$(PYTEST) --dist loadscope --doctest-modules -m "not slow and not weekly" roofline_helpers roofline tests/package

thorough: export ROOFLINE_THOROUGH := 1
thorough: lint ## run every check, all programs compiled anew
	@$(PY) -m tools.site.build
	@rm -rf _build/records && mkdir _build/records
	@ROOFLINE_USE=compiler ROOFLINE_RECORD_TO=$(CURDIR)/_build/records $(NBVAL)
	@$(PY) -m tools.notebooks.records check
	@$(TESTS) -m ''

# As the notebooks' first cell installs the package; compared with the records, then compiled
colab: ## run every notebook in the versions of Colab's TPU runtime (Linux x86-64)
	@if [ "$$(uname -sm)" != "Linux x86_64" ]; then \
	    echo "make colab: NOT RUN: Colab's TPU runtime is Linux x86-64, this is $$(uname -sm)"; \
	else $(MAKE) incolab; fi

incolab:
	@sh tools/environment.sh $(COLAB) "$(PYTHON)" requirements-colab.txt
	@$(COLAB)/bin/python -c 'import sys; sys.version_info[:2] == (3, 13) or \
	    print("make colab: Colab has Python 3.13, this is", sys.version.split()[0])'
	@$(COLAB)/bin/python tools/notebooks/alone.py notebooks/fused-kernel.ipynb
	@ROOFLINE_USE=record $(IN_COLAB) notebooks
	@$(IN_COLAB) $$(grep -l 'record=' notebooks/*.ipynb)
	@$(COLAB)/bin/python -m pytest -q --noconftest tests/package/test_accelerator_type.py

lint: $(READY) ## run linter, formatter, type checker and spelling only
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet
	@$(PY) -m mypy --no-error-summary
	@$(PY) -m codespell_lib

notebooks: $(READY) ## execute and normalise the notebooks (REFRESH=1: machine-dependent cells too)
	@$(PY) -m tools.notebooks.run execute $(if $(REFRESH),--refresh)
	@$(PY) -m tools.site.pictures

predictions: $(READY) ## accept predictions, whole results and diagnoses, then execute the notebooks
	@$(PY) -m tools.predictions --update
	@$(PY) -m tools.accepted --update
	@$(PY) -m tools.diagnoses
	@$(MAKE) notebooks

records: $(READY) ## compile for TPUs again what the notebooks compile (Linux x86-64)
	@$(PY) -m tools.notebooks.records

programs: $(READY) ## compile for TPUs what the checks compile and nobody has kept (Linux x86-64)
	@$(PY) -m tools.programs

lab: $(READY) ## open the notebooks in JupyterLab
	@$(PY) -m jupyterlab notebooks

links: $(READY) ## ask whether the outside addresses that the site links to are still there
	-@$(PY) -c 'from jupyter_book.cli.main import main; main()' build . --builder linkcheck

repository: $(READY) ## write the repository's address everywhere: URL=https://github.com/OWNER/NAME
	@$(PY) -m tools.repository $(if $(filter --unset,$(URL)),--unset,"$(URL)") $(if $(REF),--ref "$(REF)")

lock: $(READY) ## pin requirements.in anew into requirements.txt, with hashes (needs uv)
	@uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url \
	    --generate-hashes --no-strip-extras \
	    --custom-compile-command "make lock" --upgrade requirements.in -o requirements.txt

clean: ## remove the site, the environment and caches
	@rm -rf _build $(VENV) .venv-colab .pytest_cache .mypy_cache .ruff_cache .hypothesis
