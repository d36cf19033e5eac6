"""`python -m laha` is `laha`."""

from laha.cli import main

if __name__ == "__main__":
    main()
