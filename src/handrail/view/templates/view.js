"use strict";
// Keys, search, details that are loaded when a call is opened, and what comes to a session. A file needs none of it.
const rows = () => [...document.querySelectorAll(".call > summary, .row a.main")]
  .filter((one) => !one.closest("[hidden]") && !one.parentElement.parentElement.closest("details:not([open])"));
function step(by) {
  const all = rows(), at = all.indexOf(document.activeElement);
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
}
const search = document.getElementById("search");
function find() {
  const words = search.value.toLowerCase(), matches = document.getElementById("matches");
  let count = 0;
  for (const one of document.querySelectorAll("#parts > * > *, #open > *")) {
    one.hidden = words !== "" && !one.textContent.toLowerCase().includes(words);
    if (!one.hidden) count += 1;
  }
  matches.textContent = words === "" ? "" : `${count} found`;
}
if (search) search.addEventListener("input", find);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target === search) { search.value = ""; find(); search.blur(); }
  if (event.target.matches("input, textarea, select")) return;
  const field = search || document.querySelector("input[type=search]");
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "/" && field) field.focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else return;
  event.preventDefault();
});
let aim = ""; // the call that the address names, as long as what is above it is being loaded
document.addEventListener("toggle", async (event) => {
  const { id, open } = event.target, link = open && event.target.querySelector(":scope > .body > .more");
  if (!link || link.dataset.asked) return;
  link.dataset.asked = "1";
  const answer = await fetch(`${link.href}&part=1`).catch(() => ({ ok: false })); // of a server that has ended
  const html = answer.ok ? await answer.text() : "";
  const call = document.getElementById(id); // what comes to a session may have put another in its place
  if (!call) return;
  if (!answer.ok) { delete link.dataset.asked; return; }
  const unfolded = [...call.querySelectorAll("details[open]")].map((one) => one.id);
  call.querySelector(":scope > .body").outerHTML = html;
  for (const inner of unfolded) { const one = document.getElementById(inner); if (one) one.open = true; }
  const target = document.getElementById(aim);
  if (call.contains(target)) target.scrollIntoView();
  if (aim === id) aim = "";
}, true);
function openTarget() {
  aim = decodeURIComponent(location.hash.slice(1));
  const target = document.getElementById(aim);
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  if (target) target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
const status = document.getElementById("status");
if (status && status.dataset.events) {
  const parts = document.getElementById("parts"), open = document.getElementById("open");
  const bodyOf = (call) => call.querySelector(":scope > .body"), rowOf = (call) => call.querySelector(":scope > summary");
  const events = new EventSource(`${status.dataset.events}&after=${status.dataset.place}`);
  let html = "";
  function show(data) {
    const focused = document.activeElement, place = open.contains(focused) ? focused.closest("details") : null;
    const unfolded = [...open.querySelectorAll("details[open]")];
    parts.lastElementChild.insertAdjacentHTML("beforeend", data.parts.join(""));
    open.innerHTML = html = data.open;
    // What was loaded stays, with what was typed there; a call that has changed is loaded again.
    for (const before of unfolded) {
      const call = document.getElementById(before.id);
      if (!call) continue;
      const body = bodyOf(before), link = bodyOf(call).querySelector(":scope > .more");
      bodyOf(call).replaceWith(body);
      if (rowOf(call).innerHTML !== rowOf(before).innerHTML && !body.querySelector(":scope > .more")) body.prepend(link);
      call.open = true;
    }
    const call = place && document.getElementById(place.id);
    if (call) (focused.isConnected ? focused : rowOf(call)).focus({ preventScroll: true });
  }
  events.onmessage = (event) => {
    const data = JSON.parse(event.data);
    if (data.parts.length || data.open !== html) show(data);
    status.innerHTML = data.status;
    if (search && search.value) find();
  };
  events.addEventListener("fault", (event) => { status.textContent = JSON.parse(event.data); });
  events.onerror = () => {
    status.classList.add("cut-off");
    if (events.readyState === EventSource.CLOSED) status.append(" This page is not followed any more; open it again. ");
  };
  events.onopen = () => status.classList.remove("cut-off");
}
