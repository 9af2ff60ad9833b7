"""Code for every room: checked arguments and errors, numbers as text, records, data types."""
