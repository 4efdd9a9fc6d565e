"""`python -m models` gets the model and prints where it is."""

from models.smollm2 import smollm2_directory

if __name__ == "__main__":
    print(smollm2_directory())
