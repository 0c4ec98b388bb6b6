"""Read and write run folders. A folder may come from an untrusted source, so everything in it is checked first."""
