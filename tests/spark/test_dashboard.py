"""Opens the dashboard of a real job in a real browser: what it shows, what its buttons do, who can use it.

The browser is Chromium of the system. Where there is none, these tests are left out.
"""

from __future__ import annotations

import mimetypes
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest

from penstock.common import Types
from penstock.rest.job_registry import RunningJob, dashboard_address, running_jobs
from tests.spark.small_jobs import KEPT, checkpoints, environment, numbers, restarts, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAME = '<img src=x onerror="window.ran=true"> & orders'
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
TABS = ("overview", "checkpoints", "failures", "settings")


def look_up(pair: tuple[int, int]) -> tuple[int, int]:
    time.sleep(0.002)
    if pair[1] == 50:
        raise ValueError("<b>order 50</b> has no customer")
    return pair


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, RunningJob]]:
    """A job under pressure that has failed once, and always fails at that row again after a restore before it."""
    monkeypatch.setenv("PENSTOCK_REGISTRY_DIR", str(tmp_path / "registry"))
    failed = tmp_path / "failed"

    def once(pair: tuple[int, int]) -> tuple[int, int]:
        if failed.exists():
            time.sleep(0.002)
            return pair
        failed.touch()
        return look_up((0, 50))

    options = {**checkpoints(tmp_path / "checkpoints"), **restarts(100), **KEPT}
    options["execution_checkpointing_savepoint__dir"] = str(tmp_path / "savepoints")
    env = environment(2, **options)
    rows = (
        numbers(env, 10**9).map(lambda i: (i % 100, i), PAIR).name("parse").rebalance().map(once, PAIR).name("look up")
    )
    totals = rows.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1])).name("totals")
    totals.filter(lambda pair: False).print()
    client = env.execute_async(NAME)
    try:
        wait_until(
            lambda: client.report().restarts == 1 and client.report().completed >= 3, "checkpoints after a restart"
        )
        (found,) = running_jobs()
        yield client, found
    finally:
        client.cancel().result(60)


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, job: RunningJob, **looks: Any) -> tuple[Any, list[str]]:
    page, said = browser.new_context(**looks).new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(dashboard_address(job))
    page.wait_for_selector(".tiles")
    return page, said


def test_a_job_is_shown_explained_and_controlled_in_a_browser(job: tuple[Any, RunningJob], browser: Any) -> None:
    client, found = job
    page, said = opened(browser, found)
    page.get_by_role("heading", name=NAME, exact=True).wait_for()
    page.get_by_text("'look up' is the bottleneck").wait_for()
    assert job[1].token not in page.url, "the token is not left in the history"
    page.get_by_role("button", name="look up, parallelism 2").press("Enter")
    page.get_by_role("heading", name="Subtasks of look up").wait_for()

    page.get_by_role("link", name="Checkpoints", exact=True).first.click()
    page.locator("tbody .link").nth(1).click()
    page.get_by_text("what each subtask waited for").wait_for()
    page.locator(".lane").nth(5).wait_for()
    page.get_by_role("link", name="Failures (1)").click()
    page.get_by_text("<b>order 50</b> has no customer").first.wait_for()
    page.get_by_text("Traceback (most recent call last)").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.get_by_text("execution.checkpointing.savepoint-dir").wait_for()
    assert page.evaluate("window.ran") is None, "text of users is shown, and never run"

    page.get_by_role("button", name="Savepoint").click()
    page.get_by_role("button", name="Take it").click()
    page.get_by_text("The savepoint is complete: ").wait_for(timeout=90_000)
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    page.get_by_text("The job is being cancelled.").wait_for(timeout=60_000)
    wait_until(lambda: client.get_job_status().result().name == "CANCELED", "the end of the job")
    page.get_by_text("The driver does not answer.").wait_for(timeout=60_000)
    page.get_by_text("What you see is of").wait_for()
    assert not [text for text in said if "Failed to load resource" not in text and "ERR_" not in text], said


def test_everybody_can_use_every_page(job: tuple[Any, RunningJob], browser: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for scheme in ("light", "dark"):
        for size in ({"width": 1440, "height": 900}, {"width": 390, "height": 844}):
            page, said = opened(browser, job[1], viewport=size, color_scheme=scheme)
            for tab in TABS:
                page.goto(f"{job[1].url}/ui/#/{job[1].job_id}/{tab}")
                page.locator(".card h2").first.wait_for()
                found = Axe().run(page).response["violations"]
                serious = [(v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]
                assert not serious, f"{tab}, {scheme}, {size}: {serious}"
                assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], f"{tab} is wider: {size}"
            assert not said
            page.close()


def test_without_the_token_a_page_asks_for_it(job: tuple[Any, RunningJob], browser: Any) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{job[1].url}/ui/")
    page.get_by_label("Token").fill(job[1].token)
    page.get_by_role("button", name="Show the jobs").click()
    page.wait_for_selector(".tiles")


FLINKS_PAGES = (
    "overview", "task-manager", *(f"job/running/JOB/{page}" for page in (
        "overview", "overview/VERTEX/detail", "overview/VERTEX/subtasks", "overview/VERTEX/backpressure",
        "overview/VERTEX/watermarks", "overview/VERTEX/accumulators", "overview/VERTEX/metrics",
        "overview/VERTEX/taskmanagers", "exceptions", "timeline", "checkpoints", "configuration",
    )),
)  # fmt: skip


@pytest.fixture(scope="module")
def flinks_pages(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """The web pages of Flink 2.3.0, from Maven."""
    if shutil.which("mvn") is None:
        pytest.skip("there is no Maven, which brings Flink's pages: apt-get install maven")
    folder = tmp_path_factory.mktemp("pages")
    artifact = "org.apache.flink:flink-runtime-web:2.3.0"
    copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
    subprocess.run(copy, check=True, timeout=250, capture_output=True, cwd=folder)
    return ZipFile(folder / "flink-runtime-web-2.3.0.jar")


def test_flinks_own_pages_show_the_job_without_an_error(
    job: tuple[Any, RunningJob], browser: Any, flinks_pages: ZipFile
) -> None:
    found = job[1]
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {found.token}"})
    names = set(flinks_pages.namelist())

    def serve(route: Any) -> None:
        """Flink's files from its archive; everything else is asked of our server."""
        name = "web" + (urlsplit(route.request.url).path.replace("//", "/").rstrip("/") or "/index.html")
        if name in names:
            kind = mimetypes.guess_type(name)[0] or "text/html"
            route.fulfill(body=flinks_pages.read(name), content_type=kind)
        else:
            route.continue_()

    context.route("**/*", serve)
    page, said = context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("response", lambda answer: said.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    for name in FLINKS_PAGES:
        page.goto(f"{found.url}/#/{name.replace('JOB', found.job_id).replace('VERTEX', f'{1:032x}')}")
        page.wait_for_timeout(800)  # only the fragment changes: the page asks by itself
        assert not said, f"{name}: {said[0][:500]}"
