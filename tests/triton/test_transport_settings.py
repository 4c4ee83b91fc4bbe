"""The setting that chooses the transport."""

from __future__ import annotations

import pytest

from gateway.settings import ConfigError, load_settings

ONE = {"GATEWAY_MODEL": "m", "GATEWAY_TRITON_URL": "triton:8001"}


def test_the_gateway_chooses_unless_said_otherwise() -> None:
    assert load_settings(environment=ONE).models[0].triton.transport == "auto"
    for name in ("auto", "grpcio", "h2"):
        assert load_settings(environment=ONE | {"GATEWAY_TRANSPORT": name}).models[0].triton.transport == name


def test_what_is_no_transport_is_refused_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"models\[0\]\.triton\.transport \(GATEWAY_TRANSPORT\)"):
        load_settings(environment=ONE | {"GATEWAY_TRANSPORT": "http3"})


@pytest.mark.parametrize("scheme", ["grpcs://", "https://", "grpc+tls://"])
def test_a_scheme_is_no_part_of_the_address(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"models\[0\]\.triton\.url"):
        load_settings(environment=ONE | {"GATEWAY_TRITON_URL": f"{scheme}triton:8001", "GATEWAY_TRANSPORT": "h2"})
