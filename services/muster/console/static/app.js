// Routes addresses (#/queue) to views, and keeps the stream of events of the one that is open.

import { ago, fill, h } from "./dom.js";
import { Events, headers, token } from "./events.js";
import { gang } from "./gang.js";
import { map } from "./map.js";
import { node } from "./node.js";
import { overview } from "./overview.js";
import { preemptions } from "./preemptions.js";
import { problems } from "./problems.js";
import { queue } from "./queue.js";
import { usage } from "./usage.js";
import { whatif } from "./whatif.js";

const VIEWS = { "": overview, queue, gang, map, preemptions, problems, node, whatif, namespaces: usage };
const LINKS = [["", "Overview"], ["queue", "Queue"], ["map", "Map"], ["namespaces", "Namespaces"], ["preemptions", "Preemptions"], ["problems", "Problems"], ["whatif", "What if"]];
const THEMES = ["auto", "light", "dark"];

const main = document.getElementById("main");
const banner = document.getElementById("banner");
const user = document.getElementById("user");
let open = null;

function show() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  const subject = decoded(rest.join("/"));
  open?.events.close();
  open?.view.close?.();
  open = null;
  fill(banner);
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const make = VIEWS[name];
  if (make === undefined) {
    fill(main, h("h1", {}, "There is no such page"));
    return;
  }
  main.dataset.state = "loading";
  const view = make(main, subject);
  document.title = `${view.title} · Muster`;
  const events = new Events(view.parameters, {
    ...view.on,
    session: (session) => {
      fill(user, session.user);
      view.on.session?.(session);
    },
    open: () => {
      fill(banner);
      main.dataset.state = "open";
    },
    lost: (text) => {
      main.dataset.state = "lost";
      fill(banner, h("p", { class: "warning" }, `${text} What is shown may be out of date; connecting again.`));
    },
    unauthenticated: (text) => login(text),
  });
  open = { view, events };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function login(text) {
  open?.events.close();
  open = null;
  main.dataset.state = "login";
  const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const error = h("p", { class: "error", role: "alert" }, token.get() ? text : "");
  const form = h("form", {
    class: "login",
    onsubmit: async (event) => {
      event.preventDefault();
      token.set(input.value.trim());
      const response = await fetch("/api/session", { headers: headers() });
      if (response.ok) show();
      else fill(error, (await response.json()).error);
    },
  },
  h("h1", {}, "Sign in"),
  h("p", {}, "Give a token of the cluster: you see what you may read there."),
  h("label", { for: "token" }, "Token"), input, h("button", { type: "submit" }, "Sign in"), error,
  h("p", {}, "For a service account: ", h("code", {}, "kubectl create token NAME")));
  fill(main, form);
  input.focus();
}

function useTheme(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
  fill(document.getElementById("theme"), `Theme: ${theme}`);
  open?.view.redraw?.();
}

function storedTheme() {
  const stored = localStorage.getItem("muster-theme");
  return THEMES.includes(stored) ? stored : "auto";
}

document.getElementById("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(storedTheme()) + 1) % THEMES.length];
  localStorage.setItem("muster-theme", theme);
  useTheme(theme);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open?.view.redraw?.());
fill(document.getElementById("nav"),
  LINKS.map(([name, title]) => h("a", { href: `#/${name}`, "data-view": name }, title)));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
setInterval(() => {
  for (const element of document.querySelectorAll("time[data-since]")) {
    const text = ago(Number(element.dataset.since));
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);
addEventListener("hashchange", () => {
  show();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});
// A page that the browser keeps for "back" must not keep its connection: there are six for all tabs.
addEventListener("pagehide", () => open?.events.close());
addEventListener("pageshow", (event) => {
  if (event.persisted) show();
});
useTheme(storedTheme());
show();
