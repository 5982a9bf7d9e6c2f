"""Steps of people in the console: open a view, sign in, ask what would happen."""

import json

from builders.console.browser import Page


async def view(page: Page, url: str, route: str) -> None:
    """Open a view, and wait until it follows the cluster."""
    await page.open(f"{url.rstrip('/')}/#/{route}")
    await page.until("document.getElementById('main').dataset.state === 'open'")
    await page.until("document.querySelector('main h1') !== null")


def gang_route(id_: str) -> str:
    """Route of the page of a gang."""
    return f"gang/{id_.replace('/', '%2F')}"


async def sign_in(page: Page, token: str) -> None:
    """Give a token where the console asks for one."""
    await page.shows("Sign in")
    await type_into(page, "token", token)
    await page.press("Enter")


async def ask(page: Page, manifest: str) -> None:
    """Ask on the page "what if" what would happen to these manifests."""
    await page.until("document.querySelector('form.ask button')?.disabled === false")
    await type_into(page, "manifest", manifest)
    await page.js("document.querySelector('form.ask button').click()")


async def type_into(page: Page, id_: str, text: str) -> None:
    """Replace the text of a field by typing."""
    field = f"document.getElementById({json.dumps(id_)})"
    await page.js(f"{field}.value = ''")
    await page.js(f"{field}.focus()")
    await page.enter(text)
