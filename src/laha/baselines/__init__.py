"""The models LAHA is compared with, each behind the same estimator contract."""
