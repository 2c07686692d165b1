"""`python -m fedaux` is `fedaux`."""

from fedaux.cli import main

if __name__ == "__main__":
    main()
