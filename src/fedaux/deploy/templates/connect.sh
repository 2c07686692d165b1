
mkdir -p flwr-home  # how Flower's commands reach the server; written anew, as this folder may have been moved
printf '[superlink.fedaux]\naddress = "%s"\nroot-certificates = "%s"\n' "$LOCAL" "$here/ca.crt" \
  >flwr-home/config.toml
