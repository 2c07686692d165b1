"""Handwritten digits, of which every client has seen about one."""
