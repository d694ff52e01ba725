"""The judge: makes inputs, computes the fp64 reference, compares, times, decides. It never imports a solution."""

# What every fixture is stamped with; here, because they are read without torch.
FIXTURE_SCHEMA_VERSION = 3
GENERATOR = "philox4x32-10/1"
