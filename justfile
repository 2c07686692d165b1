# Developer's tasks, in the active environment; `just` lists them. The gate is `.ci/run`, which runs the same commands in a fresh one.

export OMP_NUM_THREADS := "1"
export FLWR_TELEMETRY_ENABLED := "0"
export FLWR_DISABLE_UPDATE_CHECK := "1"
export NO_MKDOCS_2_WARNING := "1"

_list:
    @{{ just_executable() }} --list --unsorted

# Install the package with all tools, and the hooks of git
setup:
    python -m pip install --constraint constraints.txt --editable '.[dev]'
    pre-commit install

# Format the code, and mend what the linter can
format:
    ruff format .
    ruff check --fix .

# Check format and lint
lint:
    ruff format --check .
    ruff check .

# Check types (strict, on src)
types:
    mypy

# Run all tests but the slow ones, or some: `just test tests/unit/privacy -k budget`
test *arguments:
    python -m pytest -p no:cacheprovider -n 3 --dist worksteal -m "not slow" {{ arguments }}

# Run what takes minutes: real servers, faults, long pages of the documentation
slow *arguments:
    python -m pytest -m slow {{ arguments }}

# Build the site; a warning is an error
docs:
    mkdocs build --strict

# Serve the site at http://127.0.0.1:8000, rebuilt at every change
serve:
    mkdocs serve

# Compare six methods on ten clients with about one digit each
demo *arguments:
    fedaux demo {{ arguments }}

# Run the gate
ci:
    .ci/run
