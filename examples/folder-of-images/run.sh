#!/bin/sh
# From folders of PNGs to an evaluated, exported model. scans/CLASS/*.png are private, public/*.png are anyone's,
# held-out/CLASS/*.png are for the last line alone: nothing is chosen on them.
set -e
fedaux init images --data scans --public public --clients 3
fedaux run images.toml --out run
fedaux export run --out model
fedaux evaluate model held-out --page evaluation.html
