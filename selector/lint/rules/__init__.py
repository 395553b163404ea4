"""One rule a module, named after its code: documentation, and the check where there is one."""
