"""Epsilons by account, by claim and by audit."""
