"""Checks against the server before a node is started: its certificate, its clock, and whether it knows the key."""

from __future__ import annotations

import http.client
import ssl
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

from fedaux.deploy.certificates import load_key
from fedaux.deploy.site_checks import CheckResult

TIMEOUT = 5.0  # seconds for the server to answer
MAX_AHEAD, MAX_BEHIND = 6.0, 60.0  # seconds; Flower refuses 5 ahead and 305 behind; a Date header has whole seconds


def check_server(address: str, ca: Path) -> CheckResult:
    """Whether the server answers, with a certificate signed by the authority."""
    try:
        _server_date(address, ca)
    except ssl.SSLCertVerificationError as error:
        detail = f"what answers at {address} does not prove to be the server: {error.verify_message}"
        remedy = "send nothing; ask the server whether its certificate changed, and for the ca.crt that signs it"
        return CheckResult("server", False, detail, remedy)
    except (OSError, http.client.HTTPException) as error:
        reason = "it does not speak TLS" if isinstance(error, ssl.SSLError) else str(error) or type(error).__name__
        remedy = "is it started, is SERVER in site.env right, and does a firewall let you out to this port?"
        return CheckResult("server", False, f"{address} cannot be reached: {reason}", remedy)
    return CheckResult("server", True, f"{address} answers, and its certificate is signed by ca.crt")


def check_clock(address: str, ca: Path) -> CheckResult:
    """Whether the clocks agree: the server refuses calls with a timestamp in the future or too far in the past."""
    try:
        date = _server_date(address, ca)
        offset = time.time() - parsedate_to_datetime(date).timestamp()
    except (OSError, http.client.HTTPException, ValueError) as error:
        return CheckResult("clock", None, f"the server did not say what time it has: {error}")
    remedy = "set this machine's clock, best by NTP: timedatectl set-ntp true"
    return CheckResult.of("clock", -MAX_BEHIND <= offset <= MAX_AHEAD, f"{offset:+.0f} s from the server's", remedy)


def check_registration(address: str, ca: Path, key: Path) -> CheckResult:
    """Whether the server knows the key, by a call that it must refuse in either case, so that no node appears.

    Flower looks up the key first and validates the heartbeat interval next, and a negative one is never valid.
    """
    import httpx
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    try:
        private = load_key(key)
        signer = NodeAuthHttpInterceptor(private, private.public_key())
        request = ActivateNodeRequest(public_key=public_key_to_bytes(private.public_key()), heartbeat_interval=-1)
        with FleetHttpClient.from_server_address(address, False, ca.read_bytes(), interceptors=[signer]) as client:
            client.ActivateNode(request)
    except httpx.HTTPStatusError as error:
        answer = FlowerError.from_json(error.response.text)
        if answer is not None and answer.code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
            return CheckResult("registered", True, "the server knows this key")
        if answer is not None and answer.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
            remedy = "send key.pub to the server, which stores it as keys/NAME.pub and calls register.sh"
            return CheckResult("registered", False, "the server does not know this key", remedy)
    except (httpx.HTTPError, OSError, ValueError):
        pass
    return CheckResult("registered", None, "is found out when the node starts")


def _server_date(address: str, ca: Path) -> str:
    """The Date header of a response over TLS, verified against `ca`."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection(host.strip("[]"), int(port), timeout=TIMEOUT, context=context)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().getheader("Date") or ""
    finally:
        connection.close()
