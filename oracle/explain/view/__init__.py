"""What a page about an explanation shows, worked out before a template lays it out."""
