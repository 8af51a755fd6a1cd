"""One file for each way of making a run private, and the seams to the cloud, the devices and the user."""
