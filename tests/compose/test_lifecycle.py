"""Down leaves nothing, and what is up again was not built again."""

from __future__ import annotations

from compose_project import Project


def test_down_leaves_only_the_volumes_and_a_second_up_reuses_everything(up: Project) -> None:
    label = f"com.docker.compose.project={up.name}"
    images = [up.inspect(service)["Image"] for service in ("gateway", "triton-cpu")]
    up.compose("down")
    assert {kind.split()[0] for kind in up.engine.leftovers(label)} <= {"volume"}
    assert up.engine.docker("volume", "ls", "--quiet", "--filter", f"label={label}").split() == [f"{up.name}_models"]

    up.compose("up", "--detach", "--wait", "--wait-timeout", "120")
    assert [up.inspect(service)["Image"] for service in ("gateway", "triton-cpu")] == images
    assert up.get("/health/ready")[0] == 200

    up.compose("down", "--volumes")
    assert up.engine.leftovers(label) == []
    up.compose("up", "--detach", "--wait", "--wait-timeout", "120")
