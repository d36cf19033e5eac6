"""The server: a REST interface, Annif's interface, and a page on which people tag documents and see why."""
