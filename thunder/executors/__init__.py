"""Executors that are written in Python and come with thunder."""
