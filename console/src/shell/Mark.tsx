/** The small rocky island. */
export function Mark() {
  return (
    <svg className="mark" viewBox="0 0 32 32" aria-hidden="true" width="20" height="20">
      <path fill="currentColor" d="M3 22 12 7l5 8 3-4 9 11zM3 25h26v2.5H3z" />
    </svg>
  );
}
