"""What every benchmark says at its end: rows with ratio and must as table, JSON and page. Measures nothing."""
