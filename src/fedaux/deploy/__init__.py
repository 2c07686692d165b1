"""Deployment to real sites: certificates, keys, settings, scripts, and checks before a
site takes part.
"""
