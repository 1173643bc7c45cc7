"""Steps of a plan that last: transitions that are written, and pods that are waited for."""
