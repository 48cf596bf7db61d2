"""Why a run learns as it does: its local models beside each other, layer by layer and on the loss."""
