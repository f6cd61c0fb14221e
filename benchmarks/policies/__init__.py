"""Which policy finds more for the same model cost: recorded pools are played under each."""
