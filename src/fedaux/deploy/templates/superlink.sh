#!/usr/bin/env bash
# Where sites call in. Until stopped.
{% include "head.sh" %}

serve() {
  exec python -m fedaux.deploy.superlink \
    --host "$BIND" --port "$PORT" --isolation process --database "$here/superlink.db" \
    --ssl-ca-certfile ca.crt --ssl-certfile server.pem --ssl-keyfile server.key \
    --enable-supernode-auth --superexec-auth-secret-file superexec.secret \
    --disable-runtime-dependency-installation
}
pause=5
{% include "keep.sh" %}
