// Announcements for screen readers.

export function announce(text) {
  const place = document.getElementById("announcer");
  place.textContent = "";
  requestAnimationFrame(() => {
    place.textContent = text;
  });
}
