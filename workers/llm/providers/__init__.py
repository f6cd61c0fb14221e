"""Open a model by its provider: OpenAI endpoints, recorded pools, agents, and prices."""
