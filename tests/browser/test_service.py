"""The page beside a service that changes, stops, or wants a token, and manifests that mean harm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser.page import NARROW, SMALL, Browse, expect, served

TOKEN = "correct-horse-battery-staple"
MARKUP = "<img src=x onerror=document.title='owned'>"
LONG = "w" * 400


def test_a_broken_manifest_is_shown_as_degraded_until_it_is_mended(
    browse: Browse, tmp_path: Path
) -> None:
    file = tmp_path / "engine.yaml"
    file.write_bytes(SMALL.read_bytes())
    with served("--manifest", str(file)) as server:
        browsed = browse(f"http://127.0.0.1:{server.port}").open("view=matrix").answered()
        page = browsed.page
        alert = page.get_by_role("alert", name="Degraded manifests")
        expect(page.locator("#health")).to_have_text("ready")
        file.write_text(SMALL.read_text().replace("    sparse: false\n", "", 1))
        server.until("manifest degraded")
        browsed.look()
        expect(alert).to_contain_text("engine is degraded since")
        expect(alert).to_contain_text("generation 1 is still served")
        finding = alert.get_by_role("listitem").first
        expect(finding).to_contain_text("17:5 CAP008 `sparse` is missing")
        expect(page.locator("#health")).to_have_text("degraded")
        browsed.shoot("degraded-light-wide")
        file.write_text(SMALL.read_text().replace('version: "1"', 'version: "2"'))
        server.until("manifest served")
        browsed.look()
        expect(alert).to_be_hidden()
        expect(page.locator("#health")).to_have_text("ready")
        expect(page.locator("#result h2")).to_contain_text("small 2")
        expect(page.locator("#served")).to_contain_text("engine, generation 2")


def test_an_older_answer_says_that_a_newer_manifest_is_served(
    browse: Browse, tmp_path: Path
) -> None:
    file = tmp_path / "engine.yaml"
    file.write_bytes(SMALL.read_bytes())
    with served("--manifest", str(file)) as server:
        browsed = browse(f"http://127.0.0.1:{server.port}")
        browsed.open("view=ask&device=9.0&fields=head_size%3D128").answered()
        file.write_text(SMALL.read_text().replace('version: "1"', 'version: "2"'))
        server.until("manifest served")
        browsed.look()
        expect(browsed.page.locator("#served")).to_contain_text(
            "Generation 2 is served now: ask again."
        )


def test_a_token_is_asked_for_and_never_part_of_the_link(browse: Browse, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with served("--token-file", str(file)) as server:
        browsed = browse(f"http://127.0.0.1:{server.port}", fails="401")
        page = browsed.open("view=ask&device=sm120&model=glm-5.2-fp8&query_len=3300").page
        field = page.get_by_label("Token", exact=True)
        expect(field).to_be_focused()
        expect(page.get_by_role("banner")).to_contain_text("The service asks for one.")
        browsed.shoot("token-light-wide")
        field.fill("wrong-horse-battery-staple")
        field.press("Enter")
        expect(page.get_by_role("banner")).to_contain_text("The service refuses this token.")
        field.fill(TOKEN)
        field.press("Enter")
        browsed.answered()
        expect(field).to_be_hidden()
        expect(page.locator(".choice").first).to_contain_text("flashinfer_sparse_mla_sm120")
        expect(page.get_by_role("combobox", name="Model")).to_have_value("glm-5.2-fp8")
        assert "horse" not in page.url
        page.get_by_role("button", name="Matrix").click()
        browsed.answered()
        assert "horse" not in page.url
        assert "horse" not in page.content()
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0


def test_a_late_refusal_of_an_older_token_asks_for_none(browse: Browse, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    with served("--token-file", str(file)) as server:
        browsed = browse(f"http://127.0.0.1:{server.port}", fails="401")
        page = browsed.open("view=diff").page
        late: list[Any] = []  # the first question is held until the right token is given

        def hold(route: Any) -> None:
            route.continue_() if late else late.append(route)

        page.route("**/v1/models", hold)
        field = page.get_by_label("Token", exact=True)
        field.fill("wrong-horse-battery-staple")
        field.press("Enter")
        expect(field).to_be_hidden()
        page.get_by_role("button", name="Matrix").click()
        expect(field).to_be_visible()
        field.fill(TOKEN)
        field.press("Enter")
        browsed.answered()
        with page.expect_response("**/v1/models"):
            late[0].continue_()
        page.get_by_role("button", name="Question").click()
        page.get_by_role("combobox", name="Model").select_option("glm-5.2-fp8")
        expect(field).to_be_hidden()


def test_a_service_that_stops_is_said_and_comes_back_alone(browse: Browse, tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_bytes(SMALL.read_bytes())
    with served("--manifest", str(file)) as server:
        browsed = browse(f"http://127.0.0.1:{server.port}", fails="ERR_CONNECTION|ERR_EMPTY")
        page = browsed.open("view=ask&device=9.0&fields=head_size%3D128").answered().page
        choice = page.locator(".choice").first.inner_text()
        port = str(server.port)
    browsed.look()
    expect(page.locator("#health")).to_have_text(re.compile("not reached.+every 5 seconds"))
    assert page.locator(".choice").first.inner_text() == choice, "what was answered stays"
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator("#message.bad")).to_have_text("the service is not reached")
    browsed.shoot("not-reached-light-wide")
    with served("--manifest", str(file), "--port", port):
        browsed.look()
        expect(page.locator("#health")).to_have_text("ready")
        page.get_by_role("button", name="Answer", exact=True).click()
        browsed.answered()
        assert page.locator(".choice").first.inner_text() == choice


@pytest.mark.parametrize("viewport", [NARROW, None])
def test_hostile_text_stays_text(
    browse: Browse, tmp_path: Path, viewport: dict[str, int] | None
) -> None:
    file = tmp_path / f"{MARKUP} {LONG[:100]}.yaml"
    text = SMALL.read_text()
    for said in ("Only the top-k MQA path exists on 12.x.", "Sparse MLA has one kernel"):
        assert said in text
        text = text.replace(said, f"{MARKUP} {LONG}")
    text = text.replace("https://example.org/pull/51395", "javascript:document.title='owned'")
    file.write_text(text.replace('version: "1"', f'version: "{MARKUP}{LONG[:60]}"'))
    fields = "mla%3Dtrue%0Asparse%3Dtrue%0Akv_cache_dtype%3Dfp8_ds_mla"
    with served("--manifest", str(file)) as server:
        options = {"viewport": viewport} if viewport else {}
        browsed = browse(f"http://127.0.0.1:{server.port}", fails="422", **options)
        name = "narrow" if viewport else "wide"
        page = browsed.open("view=matrix").answered().page
        expect(page.locator("#result h2")).to_contain_text(MARKUP)
        browsed.shoot(f"hostile-matrix-light-{name}")
        browsed.open(f"view=ask&device=12.0&query_len=300&fields={fields}").answered()
        expect(page.locator(".answer")).to_contain_text(f"{MARKUP} {LONG}")
        expect(page.locator(".answer")).to_contain_text("javascript:document")
        assert page.locator("#result a[href^=javascript]").count() == 0
        browsed.shoot(f"hostile-answer-light-{name}")
        browsed.open(f"view=ask&device={MARKUP}{LONG}")
        page.get_by_role("button", name="Answer", exact=True).click()
        expect(page.locator("#message.bad")).to_contain_text("<img src=x")
        browsed.shoot(f"hostile-device-light-{name}")
        file.write_text(f"attnsel: 1\n{LONG}: '{MARKUP}'\n")
        server.until("manifest degraded")
        browsed.look()
        expect(page.get_by_role("alert", name="Degraded manifests")).to_contain_text(LONG[:50])
        browsed.shoot(f"hostile-degraded-light-{name}")
        assert page.locator("img").count() == 0
        assert "owned" not in page.title()


def test_a_hostile_model(browse: Browse) -> None:
    config = (
        '{"model_type": "' + MARKUP + LONG + '", "hidden_size": 512, "num_attention_heads": 8,'
        ' "num_hidden_layers": 2}'
    )
    browsed = browse(viewport=NARROW, fails="422").open("view=ask&device=9.0")
    page = browsed.page
    page.get_by_text("config.json, what is installed").click()
    page.get_by_label("A model's config.json").fill(config)
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator("main")).to_contain_text("<img src=x")
    browsed.shoot("hostile-model-light-narrow")
    assert page.locator("img").count() == 0
