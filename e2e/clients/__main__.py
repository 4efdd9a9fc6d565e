"""`python -m clients` gets the older client and prints where it is."""

from clients.older_openai import older_openai_directory

if __name__ == "__main__":
    print(older_openai_directory())
