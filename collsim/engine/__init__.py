"""Time: programs, the engines that run them, and the result."""
