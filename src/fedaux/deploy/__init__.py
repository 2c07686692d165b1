"""From one machine to real sites: certificates, keys, settings and scripts, and a check before anything is sent."""
