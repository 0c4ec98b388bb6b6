"""Our operations inside compiled graphs, and dropping graphs that a change makes void."""
