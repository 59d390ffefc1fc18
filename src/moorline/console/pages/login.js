// Who looks: by what somebody may log in, what of it this window keeps, and how it is ended. A password, a token
// or the word of an issuer is said once: behind it the page asks for a pass, and keeps that.

import { h, replace, shown } from "./draw.js";
import { fromBase64 } from "./link.js";

const KEPT = "moorline-proof";
const GOING = "moorline-going";
const LEAVE = "moorline-leave";
const LASTING = new Set(["pass", ""]);

/** What a window keeps, and no other has: it is gone with it. */
function keep(name, value) {
  if (value) sessionStorage.setItem(name, JSON.stringify(value));
  else sessionStorage.removeItem(name);
}

function kept(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name));
  } catch {
    return null;
  }
}

export class Login {
  #ways = null;
  #proof = null;
  #who = h("summary", {}, "…");
  #leave = h(
    "details",
    { class: "leave", hidden: true },
    this.#who,
    h("button", { type: "button", click: () => this.#out(false) }, "Log out"),
    h("button", { type: "button", click: () => this.#out(true) }, "Log out everywhere"),
  );

  constructor(link, main, views) {
    this.link = link;
    this.main = main;
    this.views = views;
    link.challenged = (proof) => this.#go(proof);
    document.querySelector("header").append(this.#leave);
  }

  /** By what stands in the address, what this window keeps, or what the browser shows the node by itself. */
  begin() {
    const pass = /^#pass=([\w-]+)$/.exec(location.hash);
    const said = new URLSearchParams(location.search);
    if (pass) {
      // Not left in the address, where it would be copied along.
      history.replaceState(null, "", location.pathname);
      this.#enter({ mechanism: "pass", proof: pass[1] });
    } else if (said.has("state") && (said.has("code") || said.has("error"))) {
      this.#back(said);
    } else {
      // Without a proof the node may still know us, by a certificate.
      this.#enter(kept(KEPT));
    }
  }

  /** The node has let somebody in. */
  async opened() {
    this.#who.textContent = "…";
    this.#leave.hidden = false;
    if (!LASTING.has(this.#proof?.mechanism ?? "")) await this.#last();
    try {
      this.#who.textContent = shown((await this.link.call("WhoAmI")).principal);
    } catch {
      // The next drawing says why.
    }
  }

  /** The node does not let anybody in by that. */
  refused(text) {
    keep(KEPT, null);
    this.#show(text);
  }

  #enter(proof) {
    this.#proof = proof;
    if (!proof || proof.mechanism === "pass") keep(KEPT, proof);
    this.link.open(proof);
  }

  /** In place of what was said once: it is not kept, and a code of an issuer is good for nothing a second time. */
  async #last() {
    try {
      const { text } = await this.link.call("MakePass");
      this.#proof = { mechanism: "pass", proof: text };
      keep(KEPT, this.#proof);
      this.link.prove(this.#proof);
    } catch {
      keep(KEPT, null); // until this window is loaded anew
    }
  }

  // --- by an issuer -----------------------------------------------------------------------------

  #go(proof) {
    const { go, flow, state, leave } = JSON.parse(new TextDecoder().decode(fromBase64(proof)));
    this.link.close();
    const { protocol } = new URL(go);
    if (protocol !== "https:" && protocol !== "http:") return;
    keep(GOING, { flow, state, hash: location.hash });
    keep(LEAVE, leave);
    location.assign(go);
  }

  #back(said) {
    const going = kept(GOING);
    keep(GOING, null);
    // A code is not left in the address either.
    history.replaceState(null, "", location.pathname + (going?.hash ?? ""));
    if (going === null || going.state !== said.get("state")) {
      this.#show("This login did not begin in this window: begin again.");
    } else if (said.has("error")) {
      this.#show(`The issuer did not log you in: ${said.get("error_description") ?? said.get("error")}`);
    } else {
      const answer = { flow: going.flow, state: going.state, code: said.get("code"), iss: said.get("iss") ?? "" };
      this.#enter({ mechanism: "oidc", proof: JSON.stringify(answer) });
    }
  }

  // --- by a ticket of Kerberos ------------------------------------------------------------------

  /** The browser shows it, where it is told to trust this node with one; what comes back is a pass. */
  async #byTicket() {
    let said;
    try {
      const answer = await fetch("login/negotiate", { method: "POST", credentials: "include" });
      said = await answer.json();
      if (answer.ok) return this.#enter({ mechanism: "pass", proof: said.text });
    } catch (error) {
      said = { text: String(error.message ?? error) };
    }
    this.#show(said.text);
  }

  // --- the form ---------------------------------------------------------------------------------

  async #show(text) {
    this.#leave.hidden = true;
    this.#leave.open = false;
    replace(this.views);
    const { oidc, mechanisms, is_kerberos } = await this.#asked();
    const hasForm = mechanisms.includes("password") || mechanisms.includes("token");
    replace(
      this.main,
      h("h1", {}, "Who looks?"),
      text && h("p", { class: "badge warn", role: "alert" }, text),
      oidc && h("p", {}, h("button", { type: "button", class: "strong", click: () => this.#enter({ mechanism: "oidc", proof: "" }) }, `Log in with ${oidc}`)),
      is_kerberos && h("p", {}, h("button", { type: "button", click: () => this.#byTicket() }, "Log in with Kerberos")),
      h("p", {}, "On the machine of the node, ", h("code", {}, "moor console"), " prints an address that opens this page as you.", hasForm && " Or:"),
      hasForm && this.#form(),
    );
  }

  #form() {
    const take = (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      const secret = fields.get("secret");
      const user = fields.get("user");
      this.#enter(user ? { mechanism: "password", proof: `${user}\0${secret}` } : { mechanism: "token", proof: secret });
    };
    return h(
      "form",
      { class: "login", submit: take },
      h("label", {}, "User (empty for a token)", h("input", { name: "user", autocomplete: "username" })),
      h("label", {}, "Password or token", h("input", { name: "secret", type: "password", autocomplete: "current-password", required: true })),
      h("button", { class: "strong" }, "Log in"),
    );
  }

  async #asked() {
    try {
      this.#ways ??= await (await fetch("login.json")).json();
    } catch {
      return { oidc: "", mechanisms: ["password", "token"] }; // the next try may say more
    }
    return this.#ways;
  }

  // --- and out ----------------------------------------------------------------------------------

  async #out(everywhere) {
    const pass = this.#proof?.mechanism === "pass" ? this.#proof.proof : "";
    const leave = kept(LEAVE);
    let text = "You have logged out.";
    try {
      if (everywhere || pass) await this.link.call("EndPasses", { text: everywhere ? "" : pass });
    } catch (error) {
      text = `This window has logged out; the node says of the others: ${error.message}`;
    }
    for (const name of [KEPT, GOING, LEAVE]) keep(name, null);
    this.#proof = null;
    this.link.close();
    if (leave) location.assign(leave);
    else this.#show(text);
  }
}
