"""What every room uses: checked arguments and errors, numbers as text, records, data types."""
