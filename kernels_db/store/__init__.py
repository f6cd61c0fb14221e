"""The database: tables, transactions, records, lists and recorded pools."""
