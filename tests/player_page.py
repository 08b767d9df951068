"""A page of the step player in a browser, as its tests handle it."""

from __future__ import annotations

from hashlib import sha256
from typing import Any


class Opened:
    """A page, with all that it complained about and all that it asked for."""

    def __init__(self, browser: Any, address: str, **how: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **how})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def text(self, name: str) -> str:
        return str(self.page.locator(f"#{name}").text_content())

    @property
    def clock(self) -> float:
        return float(self.text("clock").split(" of ")[0])

    def scrub(self, share: float) -> None:
        self.page.locator("#scrub").evaluate(
            "(bar, share) => { bar.value = String(share * bar.max); bar.dispatchEvent(new Event('input')); }", share
        )
        self.settle()

    def settle(self) -> None:
        """Wait for two frames."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.settle()

    def colour(self, canvas: str, x: float, y: float) -> list[int]:
        """Colour of a canvas at a place in pixels of the page."""
        found: list[int] = self.page.locator(f"#{canvas}").evaluate(
            "(c, [x, y]) => { const k = c.width / c.getBoundingClientRect().width;"
            " return [...c.getContext('2d').getImageData(Math.round(x * k), Math.round(y * k), 1, 1).data]; }",
            [x, y],
        )
        return found

    def picture(self, canvas: str) -> str:
        """Return a digest of what a canvas shows."""
        return sha256(self.page.locator(f"#{canvas}").evaluate("c => c.toDataURL()").encode()).hexdigest()

    def tips(self, canvas: str, places: list[tuple[float, float]]) -> list[str]:
        """Put the pointer on many places (shares of the width and height), and return what the tips say."""
        found: list[str] = self.page.locator(f"#{canvas}").evaluate(
            """(canvas, places) => {
              const box = canvas.getBoundingClientRect(), tip = document.getElementById('tip');
              return places.map(([x, y]) => {
                const place = { clientX: box.x + x * box.width, clientY: box.y + y * box.height, pointerType: 'mouse' };
                canvas.dispatchEvent(new PointerEvent('pointermove', place));
                return tip.hidden ? '' : [...tip.children].map(part => part.textContent).join('\\n');
              });
            }""",
            places,
        )
        return found

    def hover(self, canvas: str, across: float, down: float) -> str:
        """Put the pointer on a canvas, and return what the tip says."""
        box = self.page.locator(f"#{canvas}").bounding_box()
        self.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        self.settle()
        tip = self.page.locator("#tip")
        return "\n".join(tip.locator("b, span").all_text_contents()) if tip.is_visible() else ""

    def quiet(self) -> None:
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith(("file:", "data:"))] == []
        assert sum(url.startswith("file:") for url in self.requests) <= 1
