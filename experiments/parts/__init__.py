"""Parts that few runs need: copy the file that you name beside yours, or name it by its folder."""
