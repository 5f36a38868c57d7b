"""The page at `/` in headless Chromium, used as a person uses it: by keyboard, on a phone, light and dark."""

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import aiohttp
import pytest
import tensorflow as tf

from export.serve import page
from tests.export.serving.models import write_model
from tests.export.serving.running import running
from tests.export.serving.test_serving_page import Reviews


def test_names_cannot_leave_their_script(tmp_path):
    assert page.read_labels(str(tmp_path)) == []
    html = page.render({"</script><b>": ["<i>", "ü"]}).decode()
    inside = re.search(r'id="models">(.*?)</script>', html)[1]
    assert json.loads(inside) == [{"name": "</script><b>", "labels": ["<i>", "ü"]}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    (base / "half").mkdir()
    write_model(base / "half", 1)
    labels = base / "labels.txt"
    labels.write_text("bad\ngood\n")
    model = Reviews()
    model.asset = tf.saved_model.Asset(str(labels))
    tf.saved_model.save(model, str(base / "reviews/1"), signatures={"serving_default": model.answer})
    listed = "".join(
        f'config {{ name: "{name}" base_path: "{base}/{name}" model_platform: "tensorflow" }}'
        for name in ("reviews", "half")
    )
    (base / "models.config").write_text(f"model_config_list {{ {listed} }}")
    with running(f"--model_config_file={base}/models.config") as started:
        yield started


def test_the_page_is_served_and_loads_nothing_from_elsewhere(server):
    status, headers, body = server.http("GET", "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert json.loads(re.search(rb'id="models">(.*?)</script>', body)[1]) == [
        {"name": "half", "labels": []}, {"name": "reviews", "labels": ["bad", "good"]},
    ]  # fmt: skip
    assert not re.search(rb"(src|href)=\"(?!data:)", body) and b"@import" not in body


class Browser:
    """A page in headless Chromium, driven over its debugging protocol."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters) -> dict:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=30)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    async def run(self, script: str):
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, script: str) -> None:
        for _ in range(200):
            if await self.run(script):
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{script}: {await self.run('document.body.innerText')}")

    async def key(self, key: str, modifiers: int = 0, text: str = "") -> None:
        codes = {"windowsVirtualKeyCode": {"Enter": 13, "Tab": 9}.get(key, 0)}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, text=text, **codes)

    async def screenshot(self, name: str) -> None:
        if folder := os.environ.get("BERT_TF_SCREENSHOTS"):
            image = await self.call("Page.captureScreenshot", format="png")
            (pathlib.Path(folder) / name).write_bytes(base64.b64decode(image["data"]))


@contextlib.asynccontextmanager
async def browser(url: str, profile: pathlib.Path):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "make test-browser needs Chromium"
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
    ]
    process = subprocess.Popen([program, *flags, "about:blank"], stderr=subprocess.DEVNULL)
    try:
        port_file = profile / "DevToolsActivePort"
        for _ in range(600):
            if port_file.exists() and port_file.read_text().strip():
                break
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{port}/json/new?{url}") as answer:
                target = (await answer.json())["webSocketDebuggerUrl"]
            async with session.ws_connect(target, max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        process.kill()
        process.wait(10)


WIDE = "document.documentElement.scrollWidth <= innerWidth"


@pytest.mark.browser
def test_a_person_tries_models(server, tmp_path):
    async def main():
        async with browser(f"http://127.0.0.1:{server.rest_port}/", tmp_path) as tab:
            await tab.call("Page.enable")
            await tab.until("document.querySelector('textarea') !== null")
            # by keyboard alone: to the model, to reviews, to the text, and send
            await tab.run("find('model').focus()")
            await tab.run("find('model').value = 'reviews'; find('model').dispatchEvent(new Event('change'))")
            await tab.until("document.querySelector('textarea')?.name === 'text_a'")
            await tab.run("document.activeElement.blur(); find('signature').focus()")
            await tab.key("Tab")
            assert await tab.run("document.activeElement.name") == "text_a"
            await tab.call("Input.insertText", text="What a 'film'!")
            await tab.key("Enter", modifiers=2)
            await tab.until("document.querySelectorAll('.bar').length === 2")
            assert await tab.run("document.querySelector('.best').innerText.replace(/\\s+/g, ' ')") == "good 1.000"
            assert "\\u0027film\\u0027" in await tab.run("find('command').textContent")
            await tab.screenshot("light.png")
            assert await tab.run(WIDE)
            await tab.call(
                "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True
            )
            light = await tab.run("getComputedStyle(document.body).backgroundColor")
            dark = [{"name": "prefers-color-scheme", "value": "dark"}]
            await tab.call("Emulation.setEmulatedMedia", features=dark)
            assert await tab.run("getComputedStyle(document.body).backgroundColor") != light
            assert await tab.run(WIDE)
            await tab.screenshot("phone-dark.png")
            # a signature of numbers, and the server's own words for a mistake
            await tab.run("find('model').value = 'half'; find('model').dispatchEvent(new Event('change'))")
            await tab.until("document.querySelector('textarea')?.name === 'x'")
            for text, expected in [("4", "3"), ('"a"', "not of expected type: float"), ("{", "JSON")]:
                await tab.run(f"document.querySelector('textarea').value = {json.dumps(text)}; find('send').click()")
                await tab.until(f"find('answer').innerText.includes({json.dumps(expected)})")

    asyncio.run(main())
