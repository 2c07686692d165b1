"""`flower-superexec` with the same options, but the token of an app is in no list of
processes.

python -m fedaux.deploy.superexec --runtime-api-address 127.0.0.1:8443 ...
"""

from __future__ import annotations

from fedaux.deploy import flower_patches


def main() -> None:
    from flwr.supercore.cli.flower_superexec import flower_superexec

    flower_patches.refuse_untested_flower()
    flower_patches.hide_tokens_of_apps()
    flower_superexec()


if __name__ == "__main__":
    main()
