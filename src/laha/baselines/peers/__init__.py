"""Other people's programs, trained through their own interfaces on the same features, with their own defaults."""
