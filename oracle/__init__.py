"""A differential harness: does an inference engine still compute the right thing, and if not, where does it part?"""
