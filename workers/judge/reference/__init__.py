"""The op's reference: warm runners, tolerances, input checks and admission."""
